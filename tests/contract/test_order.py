from sqlqueue.testing.contract.order import OrderContract


class TestOrder(OrderContract):
    pass
