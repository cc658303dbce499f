"""The frozen nouns of rv: what a request, a snapshot, a strategy, a plan, a job and a race are.

Everything imports these; they import nothing of rv but `rv.errors`.
"""
