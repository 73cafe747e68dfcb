"""The vector index: mapping, bulk writes, throttle, generations, search."""
