"""What Slurm's commands print: the scripts that run them and the parsers, a module a command.

Parsers are pure, take any text and never raise. `probe` and `squeue.OwnJobs` run the commands.
"""
