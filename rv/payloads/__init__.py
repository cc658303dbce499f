"""Bundled scripts that jobs run: stand-alone, stdlib and torch only, never importing rv."""
