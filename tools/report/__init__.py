"""One outcome model, rendered for a terminal, for machines, as Markdown and as a page."""
