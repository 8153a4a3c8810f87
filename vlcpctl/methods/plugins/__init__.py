"""Methods from outside the package: files given with --method-file, and installed plug-ins."""
