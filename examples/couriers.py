"""Give each order to one of the couriers nearby, in proportion to merit, although rewards are late.

Eight of forty couriers are near an order. Every 400 orders a courier leaves and another joins. Whether an
order arrived in time is known 300 to 900 orders later, and of 8 % never. Everything is left at its default.
"""

import numpy as np

import fedfairx as ffx
from fedfairx.demo.couriers import FEATURES, SHARED, Couriers

schema = ffx.features.Schema(FEATURES, shared=list(SHARED))


def deliver(seed: int, *, orders: int = 4_000) -> dict[str, np.ndarray]:
    """For every order: the largest share, the distance of shares from those that merit entitles to, that of
    equal shares, and what couriers who joined later are shown and are due."""
    city, agent, waiting = Couriers(seed), ffx.Agent(schema=schema, seed=seed), {}
    rows = []
    for number in range(orders):
        for decision, reward in waiting.pop(number, []):
            agent.observe(decision, reward=reward)
        order = city.order()
        decision = agent.decide(order.rows, context=order.context)
        if order.after is not None:  # else its reward never comes
            late = waiting.setdefault(number + order.after, [])
            late.append((decision, order.reward(decision.action)))
        shares, due = decision.policy, order.entitled
        new = np.array([each.group == "new" for each in order.near])
        apart, equal = np.abs(shares - due).sum(), np.abs(1 / len(due) - due).sum()
        rows.append((shares.max(), apart, equal, shares[new].sum(), due[new].sum()))
    names = ("largest", "apart", "equal", "new shown", "new due")
    return dict(zip(names, np.array(rows).T, strict=True))


if __name__ == "__main__":
    result = deliver(seed=0)
    for first, last in ((0, 300), (300, 1_000), (1_000, 2_000), (2_000, 4_000)):
        part = {name: values[first:last].mean() for name, values in result.items()}
        print(
            f"orders {first} to {last}: largest share {part['largest']:.2f}, "
            f"distance from fair shares {part['apart']:.2f} (equal shares {part['equal']:.2f})"
        )
    shown, due = result["new shown"].sum(), result["new due"].sum()
    print(f"couriers who joined later: {shown / due:.2f} of the share that merit entitles them to")
