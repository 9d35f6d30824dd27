"""Requests to other machines: object stores, web servers, retries and timeouts."""
