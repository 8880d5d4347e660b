"""What a model and a GPU are: parameters, KV cache, memory, and the time of one engine step."""
