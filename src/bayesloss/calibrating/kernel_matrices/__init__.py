"""A GP classifier under its kernel matrix: the choice of a kernel, and fits of many inputs."""
