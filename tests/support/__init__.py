"""Helpers of the tests: real databases, and the check that a test leaves nothing behind."""
