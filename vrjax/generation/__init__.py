"""Prompts, and the engine that answers them."""
