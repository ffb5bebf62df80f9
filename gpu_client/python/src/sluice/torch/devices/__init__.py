"""Process groups whose devices have different backends, and collectives of devices with streams."""
