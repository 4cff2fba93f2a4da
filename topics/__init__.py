"""How it travels: the topic catalog, keys, the codec, and the clients of Kafka."""
