"""One module a kind of family: each function reads a config and gives the architecture."""
