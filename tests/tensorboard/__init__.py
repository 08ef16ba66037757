"""The views in TensorBoard: routes, the stock plugin's views, and the page in a real browser."""
