"""Acceptance: run the payloads as any user's job, judge what they measured, keep and compare it."""
