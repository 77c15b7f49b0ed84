"""`regard explore`: a local page on which attention can be touched, on the user's own words, tables and models."""
