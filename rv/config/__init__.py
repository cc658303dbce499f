"""The files that people write, in YAML: settings, GPU models, strategy families."""
