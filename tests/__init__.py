"""A package, so that workers find these tests where another distribution brings ``tests``, too."""
