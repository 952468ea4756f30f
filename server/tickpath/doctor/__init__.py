"""`tickpath doctor`: whether a host is fit for microseconds. Reads what Linux tells, and measures two things; changes
nothing."""
