"""What leaves the prompt: slots in, a plan out. Pure: no IO, clock, network or logging."""
