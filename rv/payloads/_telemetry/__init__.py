"""What GPUs report while they work, sampled and judged: heat, throttling, memory errors."""
