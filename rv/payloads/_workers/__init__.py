"""What alloc_stress.py starts: workers on the GPUs of a job, and programs given some of them."""
