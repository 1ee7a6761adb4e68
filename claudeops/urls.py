"""Pages that show belong to the record, endpoints that act to the escalation."""

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path

from sessions_app.access.guard import for_any_account
from sessions_app.access.login_views import CountingLoginView, OwnPasswordView

urlpatterns = [
    path("login/", CountingLoginView.as_view(), name="login"),
    path("logout/", for_any_account(LogoutView.as_view()), name="logout"),
    path("password/", for_any_account(OwnPasswordView.as_view()), name="password"),
    path("admin/", admin.site.urls),
    path("", include("escalation.urls")),
    path("", include("sessions_app.urls")),
]
