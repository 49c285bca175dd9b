"""Asking models about videos, and measuring what they say."""
