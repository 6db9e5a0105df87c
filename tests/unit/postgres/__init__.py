"""The PostgreSQL dialect, on real servers."""
