-- Which refusals are of records that no topic holds any more. Refusals are rare and never change.
CREATE INDEX rejections_by_age ON rejections (rejected_at);
