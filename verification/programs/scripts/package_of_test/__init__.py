print("package", __name__, flush=True)
