"""all_reduce_perf of NVIDIA's nccl-tests: what it prints."""
