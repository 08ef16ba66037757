import sys

VALUE = 3


def run():
    sys.path.insert(1, sys.path[0])
    import pathlib

    sys.path.append(str(pathlib.Path(__file__).parent.parent))
    from training import digest, train

    train(5)
    print(digest())
