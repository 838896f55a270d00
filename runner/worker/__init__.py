"""What runs in the child process: standard library, msgspec and the public names of benchmax.

Shipped as a read-only folder beside `errors`, `limits`, `protocol` and `channel`, under a private package name, so
that a bundle's own `runner` module is not shadowed. Hence the relative imports.
"""
