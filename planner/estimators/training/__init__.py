"""Estimates of training: operators of a layer, step time, memory."""
