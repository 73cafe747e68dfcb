"""What `ray job submit` runs, one verb each."""
