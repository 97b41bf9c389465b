"""The pages at /trimtab/: what trimtab does to the traffic, for people."""
