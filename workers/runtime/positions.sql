-- name: positions
-- How far each worker has applied its input: the fence rows.
SELECT consumer_group, topic, partition, next_offset
  FROM consumer_positions;
