"""The texts of the generated parts: of commands, methods and reference pages."""
