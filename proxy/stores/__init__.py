"""Where decisions are kept between requests: one contract, and a backend by the scheme of its URL."""
