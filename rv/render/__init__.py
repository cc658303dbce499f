"""From a submission to the text of its job script. Pure."""
