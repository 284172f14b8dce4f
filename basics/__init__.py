"""What every folder may import: imports by name, bounds of fields, files, this machine."""
