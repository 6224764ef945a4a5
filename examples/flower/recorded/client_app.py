"""A client: it trains on its own points, fails now and then, and tells its pseudonym."""

import os

from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from mrsa_watch.flower import pseudonym_mod
from recorded.task import draw_points, train

app = ClientApp()


@app.query("pseudonym", mods=[pseudonym_mod])
def tell(message: Message, context: Context) -> Message:
    """Answer with the pseudonym alone, which the mod adds."""
    return Message(RecordDict(), reply_to=message)


@app.train()
def fit(message: Message, context: Context) -> Message:
    """Train the model that the server sent."""
    # from the system: Flower's simulation hands each call the same state of a generator
    if int.from_bytes(os.urandom(4)) < float(context.run_config["loss"]) * 2**32:
        return Message(Error(0, "lost, as `loss` asks"), reply_to=message)
    points, labels = draw_points(int(context.node_config["partition-id"]))
    (weights,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    arrays = ArrayRecord([train(weights, points, labels)])
    metrics = MetricRecord({"num-examples": len(points)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
