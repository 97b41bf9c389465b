"""HTTP as a proxy needs it: header fields, bodies, targets, who may come in, and what it answers by itself."""
