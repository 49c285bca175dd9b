"""Runs started on several processes, machines or slices; each script stands around one `vrjax` command."""
