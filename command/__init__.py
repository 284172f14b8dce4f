"""Commands of `retrax`, and the functions behind them."""
