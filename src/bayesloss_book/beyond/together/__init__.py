"""Decisions that are judged together, beside those that are judged one by one."""
