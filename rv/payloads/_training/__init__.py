"""Small trainings whose every step can be checked. Its modules import torch: import them late."""
