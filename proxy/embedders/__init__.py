"""Where vectors come from: a model in this process, or an endpoint."""
