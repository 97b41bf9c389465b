"""Everything that touches the world: HTTP, tokens, configuration, audit."""
