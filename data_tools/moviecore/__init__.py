"""Writing MovieCORE: what a video model says about a clip, then six roles that discuss questions about it."""
