"""From tasks to batches: order, sampler, decoding, worker processes."""
