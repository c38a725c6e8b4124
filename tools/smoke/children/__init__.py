"""Scripts that run in other environments; they import nothing of this project by its name."""
