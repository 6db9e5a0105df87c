"""What handlers return, on its way to a broker."""
