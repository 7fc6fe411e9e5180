"""Measure search quality: test collections, experiments, reports."""
