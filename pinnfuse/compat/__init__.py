"""Names of other libraries and articles, on top of ours."""
